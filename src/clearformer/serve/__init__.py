"""An HTTP server for trained models that speaks the OpenAI API."""
