"""What a model is run on: sizes, distributions, layouts, real samples. Nothing here runs a model."""
