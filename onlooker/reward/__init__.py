"""The reward the chains reveal: histograms, R̂, distances, diagnostics and pictures."""
