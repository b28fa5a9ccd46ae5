"""Models as people write them in courses, tutorials and libraries, and bugs planted in them."""
