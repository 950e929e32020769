"""The page of the service: static files, and the ASGI application that serves them."""

from toolwright.http.page.files import CONTENT_SECURITY_POLICY, page, page_files

__all__ = ["CONTENT_SECURITY_POLICY", "page", "page_files"]
