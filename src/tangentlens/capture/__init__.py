"""Stage 1: model and probe -> the input and the output gradient at every use of a parameter."""
