"""Small utilities without a subject of their own. Private: nothing here is part of the public interface."""
