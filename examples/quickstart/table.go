package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// A table is rows of cells, written in columns. It does what text/tabwriter
// cannot: Chinese, Japanese and Korean characters take two columns of a
// terminal.
type table [][]string

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = clean(fmt.Sprint(cell))
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

// clean takes out what could break a line, or steer the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// width returns how many columns of a terminal s takes.
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
