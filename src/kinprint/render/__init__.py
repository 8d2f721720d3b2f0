"""Results to pages: takes finished results, reads nothing, concludes nothing."""
