"""Those who are told what has become durable."""
