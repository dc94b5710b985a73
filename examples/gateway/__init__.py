"""An AI gateway with one error schema, an API that answers now or hands over, and workers."""
