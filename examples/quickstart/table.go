package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"example.com/msgpush/examples/internal/cli"
)

// A table is written with aligned columns. Unlike text/tabwriter, it counts Chinese, Japanese and
// Korean characters as two columns of a terminal.
type table [][]string

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = cli.Printable(fmt.Sprint(cell))
	}
	*t = append(*t, row)
}

func (t table) write(out io.Writer) {
	var widths []int
	for _, row := range t {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(cell))
		}
	}
	for _, row := range t {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString("  " + cell + strings.Repeat(" ", widths[i]-width(cell)))
		}
		fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	}
}

// width returns the number of terminal columns that s needs.
func width(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.Is(unicode.Mn, r):
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana),
			r >= 0x3000 && r <= 0x303f, r >= 0xff01 && r <= 0xff60:
			n += 2
		default:
			n++
		}
	}
	return n
}
