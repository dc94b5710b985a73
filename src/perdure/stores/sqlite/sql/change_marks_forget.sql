-- All before the last one that is old enough: from that one on, the feed is whole.
DELETE FROM perdure_change_marks
WHERE no < (SELECT max(no) FROM perdure_change_marks WHERE marked_at <= :now - :kept_us)
