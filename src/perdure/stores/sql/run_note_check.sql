UPDATE perdure_runs SET checked = :checked WHERE no = :no AND checked < :checked
