"""The command line: parse, call the library, print. Only click is imported before a command runs."""
