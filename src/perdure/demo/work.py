"""The demo's app, as workers load it: ``perdure worker perdure.demo.work:app``."""

from perdure.demo.stages import declare

app, invoices = declare()
