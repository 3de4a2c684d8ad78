"""Every method: one file each, with its settings and how it is built from parts."""
