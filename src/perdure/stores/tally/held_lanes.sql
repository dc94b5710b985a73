-- Of some lanes, those whose upstream or credential lets nothing pass.
SELECT l.no FROM perdure_lanes AS l JOIN perdure_gates AS g ON g.name = l.upstream
LEFT JOIN perdure_gates AS k ON k.name = g.parent
WHERE {among} AND (g.state <> 'flowing' OR coalesce(k.state, 'flowing') <> 'flowing')
