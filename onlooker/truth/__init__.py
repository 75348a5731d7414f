"""What is exactly right: laws on a grid, by quadrature or from the Fokker–Planck equation."""
