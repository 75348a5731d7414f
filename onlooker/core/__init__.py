"""The vocabulary of all packages: validators, messages, kernels, densities, policies, histograms, random numbers."""
