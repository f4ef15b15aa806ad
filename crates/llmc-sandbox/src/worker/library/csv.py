def _llmc_csv_rows(lines, delimiter, quotechar):
    rows = []
    row = []
    field = ""
    quoted = False
    for line in lines:
        i = 0
        if not quoted and line.rstrip("\r\n") == "":
            continue
        while i < len(line):
            c = line[i]
            if quoted:
                if c == quotechar:
                    if line[i + 1:i + 2] == quotechar:
                        field += quotechar
                        i += 1
                    else:
                        quoted = False
                else:
                    field += c
            elif c == quotechar and field == "":
                quoted = True
            elif c == delimiter:
                row.append(field)
                field = ""
            elif c != "\n" and c != "\r":
                field += c
            i += 1
        if not quoted:
            row.append(field)
            rows.append(row)
            row = []
            field = ""
    return rows


class _llmc_csv_reader:
    def __init__(self, lines, dialect=None, delimiter=",", quotechar='"', skipinitialspace=False):
        if dialect == "excel-tab":
            delimiter = "\t"
        self.rows = _llmc_csv_rows(lines, delimiter, quotechar)
        self.line_num = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.line_num >= len(self.rows):
            raise StopIteration
        self.line_num += 1
        return self.rows[self.line_num - 1]


class _llmc_csv_DictReader:
    def __init__(self, f, fieldnames=None, restkey=None, restval=None, dialect=None, delimiter=",", quotechar='"'):
        self.reader = _llmc_csv_reader(f, dialect, delimiter, quotechar)
        if fieldnames is None:
            fieldnames = next(self.reader, None)
        self.fieldnames = fieldnames
        self.restval = restval
        self.restkey = restkey
        self.line_num = 0

    def __iter__(self):
        return self

    def __next__(self):
        row = next(self.reader)
        self.line_num = self.reader.line_num
        out = dict(zip(self.fieldnames, row))
        if len(row) > len(self.fieldnames):
            out[self.restkey] = row[len(self.fieldnames):]
        for name in self.fieldnames[len(row):]:
            out[name] = self.restval
        return out


class _llmc_csv_writer:
    def __init__(self, f, dialect=None, delimiter=",", quotechar='"', lineterminator="\r\n", quoting=0):
        self.f = f
        self.delimiter = "\t" if dialect == "excel-tab" else delimiter
        self.quotechar = quotechar
        self.end = lineterminator
        self.quoting = quoting

    def field(self, value):
        text = "" if value is None else str(value)
        if self.quoting == 1 or self.quoting == 2 and isinstance(value, str) or any([c in text for c in (self.delimiter, self.quotechar, "\n", "\r")]):
            return self.quotechar + text.replace(self.quotechar, self.quotechar * 2) + self.quotechar
        return text

    def writerow(self, row):
        self.f.write(self.delimiter.join([self.field(v) for v in row]) + self.end)

    def writerows(self, rows):
        for row in rows:
            self.writerow(row)


class _llmc_csv_DictWriter:
    def __init__(self, f, fieldnames, restval="", extrasaction="raise", **options):
        self.writer = _llmc_csv_writer(f, **options)
        self.fieldnames = list(fieldnames)
        self.restval = restval
        self.extras = extrasaction

    def writeheader(self):
        self.writer.writerow(self.fieldnames)

    def writerow(self, row):
        extra = [k for k in row if k not in self.fieldnames]
        if extra and self.extras == "raise":
            raise ValueError("dict contains fields not in fieldnames: " + ", ".join([repr(k) for k in extra]))
        self.writer.writerow([row.get(name, self.restval) for name in self.fieldnames])

    def writerows(self, rows):
        for row in rows:
            self.writerow(row)


class _llmc_csv:
    reader = _llmc_csv_reader
    DictReader = _llmc_csv_DictReader
    writer = _llmc_csv_writer
    DictWriter = _llmc_csv_DictWriter
    QUOTE_MINIMAL = 0
    QUOTE_ALL = 1
    QUOTE_NONNUMERIC = 2
    Error = ValueError
