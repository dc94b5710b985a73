"""What the application is told by its environment: DATASETS_ and the setting's name in capitals; README.md has the table.

Perdure finds, checks and shows them, as it does its own: `perdure config show examples.datasets.app:app --origin`.
"""

import sys

from perdure import Alias, ConfigError, Setting, load_settings

FOLDER = Setting("folder", str, "", "folder", "Where artifacts and data sets are written.")
LLM_URL = Setting("llm_url", str, "", "URL", "Where the model's OpenAI-compatible server is.")
LLM_KEY = Setting("llm_key", str, "", "key", "What the model's server knows us by.", secret=True)
LLM_MODEL = Setting("llm_model", str, "", "name", "The model that is asked.")
USD_IN = Setting("usd_per_mtok_in", float, 0.15, "USD", "A million tokens of a prompt.", 0)
USD_OUT = Setting("usd_per_mtok_out", float, 0.60, "USD", "A million tokens of an answer.", 0)
TIMEOUT_S = Setting("timeout_s", float, 60.0, "seconds", "Of a call of the model.", 0.001)
SCALE = Setting("scale", float, 1.0, "times", "Of waits; less in a demonstration.", 0.000_001)

NEEDED, FREE = (FOLDER, LLM_URL, LLM_KEY, LLM_MODEL), (USD_IN, USD_OUT, TIMEOUT_S, SCALE)
NAMES = (
    Alias("store", variable="DATASETS_STORE", needed=True),
    *(Alias(one, variable=f"DATASETS_{one.name.upper()}", needed=True) for one in NEEDED),
    *(Alias(one, variable=f"DATASETS_{one.name.upper()}") for one in FREE),
)

try:
    SETTINGS = load_settings(NAMES)
except ConfigError as wrong:  # whichever program asks says this and ends
    sys.exit(f"datasets: {wrong}")
