DELETE FROM perdure_flows WHERE minute > 0 AND minute < :old
