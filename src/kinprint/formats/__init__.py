"""Read weight files of all formats: headers to tensor tables, planned byte ranges to arrays."""
