"""What is exactly right: laws by quadrature, Fokker-Planck equations and stored references."""
