"""Parse the command line, call the library, print. Only click is imported before a command runs."""
