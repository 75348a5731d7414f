"""Watch gradient learners and reconstruct the reward they maximise."""
