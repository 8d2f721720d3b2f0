"""Databases for the tests of the shared catalog."""

from support.databases import database, postgres

__all__ = ["database", "postgres"]
