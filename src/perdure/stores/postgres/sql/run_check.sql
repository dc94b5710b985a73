UPDATE perdure_runs SET checked = %(checked)s::bigint WHERE no = %(no)s AND checked < %(checked)s::bigint
