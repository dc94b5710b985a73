"""What the application is told by its environment: REPORTS_ and the setting's name in capitals; README.md has the table.

Perdure finds, checks and shows them, as it does its own: ``perdure config show examples.reports.app:app --origin``.
"""

import sys

from perdure import Alias, ConfigError, Setting, load_settings

S3_URL = Setting("s3_url", str, "", "URL", "Where the S3 server is.")
S3_BUCKET = Setting("s3_bucket", str, "", "name", "The bucket of transcripts and reports.")
S3_REGION = Setting("s3_region", str, "us-east-1", "name", "Where the bucket is.")
S3_KEY = Setting("s3_key", str, "", "key id", "What the S3 server knows us by.")
S3_SECRET = Setting("s3_secret", str, "", "key", "The secret to that.", secret=True)
LLM_URL = Setting("llm_url", str, "", "URL", "Where the model's OpenAI-compatible server is.")
LLM_KEY = Setting("llm_key", str, "", "key", "What the model's server knows us by.", secret=True)
LLM_MODEL = Setting("llm_model", str, "", "name", "The model that is asked.")
TIMEOUT_S = Setting(
    "timeout_s", float, 180.0, "seconds", "Of a stage, and of whatever it calls.", 0.001
)
SCALE = Setting("scale", float, 1.0, "times", "Of waits; less in a demonstration.", 0.000_001)

NEEDED = (S3_URL, S3_BUCKET, S3_KEY, S3_SECRET, LLM_URL, LLM_KEY, LLM_MODEL)
NAMES = (
    Alias("store", variable="REPORTS_DATABASE", needed=True),
    *(Alias(one, variable=f"REPORTS_{one.name.upper()}", needed=True) for one in NEEDED),
    Alias(S3_REGION, variable="REPORTS_S3_REGION"),
    Alias(TIMEOUT_S, variable="REPORTS_TIMEOUT_S"),
    Alias(SCALE, variable="REPORTS_SCALE"),
)

try:
    SETTINGS = load_settings(NAMES)
except ConfigError as wrong:  # whichever program asks says this and ends
    sys.exit(f"reports: {wrong}")
