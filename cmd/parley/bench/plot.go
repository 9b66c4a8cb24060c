package bench

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Series is a line of a plot.
type Series struct {
	Name   string
	Points []Point
}

// The dimensions of a plot, in pixels.
const (
	plotWidth, plotHeight    = 640, 300
	plotLeft, plotRight      = 70, 150
	plotTop, plotBottom      = 40, 45
	plotInner, plotInnerHigh = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
)

// seriesColours are readable on a light and on a dark ground, also for colour-blind people.
var seriesColours = []string{"#3b82c4", "#d1662f", "#4f9d69", "#9a6fb0"}

// Plot returns an SVG image: the cost of each series by size. The axis of sizes is logarithmic, so that each doubling has the
// same width. The axis of costs is linear from 0: a flat line is a constant cost, and a straight rise is a logarithmic cost.
func Plot(title, sizes, costs string, series []Series) []byte {
	least, most, highest := math.Inf(1), math.Inf(-1), 0.0
	for _, s := range series {
		for _, p := range s.Points {
			size := math.Log2(float64(p.Size))
			least, most, highest = min(least, size), max(most, size), max(highest, p.Cost)
		}
	}
	step := niceStep(highest)
	top := step * max(1, math.Ceil(highest/step))
	x := func(size int) float64 {
		return plotLeft + plotInner*(math.Log2(float64(size))-least)/max(most-least, 1e-9)
	}
	y := func(cost float64) float64 { return plotTop + plotInnerHigh*(1-cost/top) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" `+
		`font-family="system-ui, sans-serif" font-size="12" fill="#808080">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(title))
	write(&b, plotLeft, plotTop-18, "start", "14", title)
	for cost := 0.0; cost <= top+step/2; cost += step {
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%[2]g" stroke="#808080" stroke-opacity="0.3"/>`+"\n",
			plotLeft, math.Round(10*y(cost))/10, plotWidth-plotRight)
		write(&b, plotLeft-8, y(cost)+4, "end", "12", trim(cost))
	}
	write(&b, plotLeft+plotInner/2, plotHeight-8, "middle", "12", sizes)
	fmt.Fprintf(&b, `<text x="16" y="%d" text-anchor="middle" transform="rotate(-90 16 %[1]d)">%s</text>`+"\n",
		plotTop+plotInnerHigh/2, html.EscapeString(costs))
	for i, s := range series {
		plotSeries(&b, s, seriesColours[i%len(seriesColours)], i == 0, x, y)
		write(&b, plotWidth-plotRight+14, plotTop+12+20*float64(i), "start", "12", s.Name)
		fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="4" fill="%s"/>`+"\n", plotWidth-plotRight+6, plotTop+8+20*i, seriesColours[i%len(seriesColours)])
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// plotSeries draws a line with its points. labelled adds the sizes below the axis.
func plotSeries(b *strings.Builder, s Series, colour string, labelled bool, x func(int) float64, y func(float64) float64) {
	var line []string
	for _, p := range s.Points {
		line = append(line, fmt.Sprintf("%.1f,%.1f", x(p.Size), y(p.Cost)))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %d, %s µs</title></circle>`+"\n", x(p.Size), y(p.Cost), colour,
			html.EscapeString(s.Name), p.Size, trim(p.Cost))
		if labelled {
			write(b, x(p.Size), plotHeight-plotBottom+17, "middle", "12", fmt.Sprint(p.Size))
		}
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(line, " "), colour)
}

func write(b *strings.Builder, x, y float64, anchor, size, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%s">%s</text>`+"\n", x, y, anchor, size, html.EscapeString(text))
}

// niceStep returns 1, 2 or 5 times a power of ten, so that about five steps reach the value.
func niceStep(value float64) float64 {
	if value <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(value/4)))
	for _, factor := range []float64{1, 2, 5} {
		if value/(factor*unit) <= 6 {
			return factor * unit
		}
	}
	return 10 * unit
}

// trim formats a number with at most two decimals below 10, and with at most one from 10 on.
func trim(v float64) string {
	digits := 2
	if v >= 10 {
		digits = 1
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
