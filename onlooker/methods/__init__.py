"""How `reconstruct` gets from observations to a Reconstruction: one file per way."""
