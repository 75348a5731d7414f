"""Between the points: rewards and gradients fitted to what was seen."""
