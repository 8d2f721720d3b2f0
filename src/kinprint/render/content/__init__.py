"""Say what a result holds, as blocks in one language, before any form lays them out."""
