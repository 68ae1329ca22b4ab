"""Networks trained to recognise objects, whose features images are compared by; they are never trained here."""
