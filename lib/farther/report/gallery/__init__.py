"""Images with the outcomes of their objects: data of the gallery's page, and examples."""
