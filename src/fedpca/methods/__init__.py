"""Every method: one file each, with its settings and how it is built from parts.

No module here imports PyTorch at its top, so that listing methods and reading results need not wait for it: parts are
imported where a method is built.
"""
