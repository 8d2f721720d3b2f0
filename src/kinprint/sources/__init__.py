"""Bytes: where files live and how ranges of them are read. Only `kinprint.formats` looks in here."""
