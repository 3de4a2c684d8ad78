"""What people see of an audit: the coordinator's page, a site's own sheet, and the page to read labels again."""

from fedpca.auditing.pages.page import page_html
from fedpca.auditing.pages.sheet import sheet_html

__all__ = ["page_html", "sheet_html"]
