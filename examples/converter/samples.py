"""PDF files to try the converter with: small, real, and different from each other."""


def make_pdf(title: str, lines: list[str], *, padding: int = 0) -> bytes:
    """A PDF of one page with these lines in plain Latin letters; ``padding`` bytes make it larger."""
    text = " ".join(f"({_escape(line)}) Tj T*" for line in lines)
    content = f"BT /F1 12 Tf 14 TL 72 760 Td {text} ET".encode("latin-1", "replace")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources 7 0 R >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Title (%s) >>" % _escape(title).encode("latin-1", "replace"),
        b"<< /Font << /F1 5 0 R >> >>",
    ]
    made, places = b"%PDF-1.4\n%" + b"x" * padding + b"\n", []
    for number, inside in enumerate(objects, start=1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, inside)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    tail = b"trailer\n<< /Size %d /Root 1 0 R /Info 6 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    return made + head + table + tail % (len(objects) + 1, len(made))


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


BROKEN_PDF = b"%PDF-1.4\nthis only looks like a PDF\n%%EOF\n"
