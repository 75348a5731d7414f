"""The gradient between the points seen."""
