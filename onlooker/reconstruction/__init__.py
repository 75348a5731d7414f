"""Observations in, a result out: fitted, kept, shown and reported."""
