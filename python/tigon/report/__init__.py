"""`python -m tigon.report`: a page about training on this machine with and without Tigon; docs/python.md."""
