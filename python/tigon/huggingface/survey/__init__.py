"""Which model families tigon.patch patches, seen on small models of each: `python -m tigon.huggingface.survey`."""
