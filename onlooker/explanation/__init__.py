"""R as weights of features that somebody can name: `explain`, and the features of policies, `tabular` and `paths`."""
