"""From run folders to tables, figures and pages."""
