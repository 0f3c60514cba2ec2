"""Stage 3: tensors -> numbers; a measure never sees a model."""
