UPDATE perdure_bulks SET done = done + :done, refused = refused + :refused WHERE no = :no
