// Renders the text templates of Kubernetes' scheduler_perf, with the functions that it gives them.
// One JSON object a line on standard input, {"path", "env"}; one JSON string a line on standard output.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/template"
)

func number(value any) float64 {
	switch n := value.(type) {
	case float64:
		return n
	case int:
		return float64(n)
	case string:
		if parsed, err := strconv.ParseFloat(n, 64); err == nil {
			return parsed
		}
	}
	panic(fmt.Sprintf("no number: %v", value))
}

// fold makes a function over any count of numbers out of one over two.
func fold(step func(a, b float64) float64) func(first any, more ...any) float64 {
	return func(first any, more ...any) float64 {
		result := number(first)
		for _, each := range more {
			result = step(result, number(each))
		}
		return result
	}
}

func whole(of func(any, ...any) float64) func(any, ...any) int {
	return func(first any, more ...any) int { return int(of(first, more...)) }
}

func main() {
	add := fold(func(a, b float64) float64 { return a + b })
	subtract := fold(func(a, b float64) float64 { return a - b })
	multiply := fold(func(a, b float64) float64 { return a * b })
	divide := fold(func(a, b float64) float64 { return a / b })
	functions := template.FuncMap{
		"AddFloat": add, "AddInt": whole(add),
		"SubtractFloat": subtract, "SubtractInt": whole(subtract),
		"MultiplyFloat": multiply, "MultiplyInt": whole(multiply),
		"DivideFloat": divide, "DivideInt": whole(divide),
		"Int": func(value any) int { return int(number(value)) },
		"Mod": func(a, b any) int { return int(number(a)) % int(number(b)) },
		"JSON": func(value any) (string, error) {
			var text bytes.Buffer
			encoder := json.NewEncoder(&text)
			encoder.SetEscapeHTML(false)
			err := encoder.Encode(value)
			return strings.TrimSpace(text.String()), err
		},
	}
	known := map[string]*template.Template{}
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	decoder := json.NewDecoder(in)
	for decoder.More() {
		var asked struct {
			Path string
			Env  map[string]any
		}
		if err := decoder.Decode(&asked); err != nil {
			fail(err)
		}
		for key, value := range asked.Env { // whole numbers are printed as such
			if n, ok := value.(float64); ok && n == float64(int(n)) {
				asked.Env[key] = int(n)
			}
		}
		if known[asked.Path] == nil {
			text, err := os.ReadFile(asked.Path)
			if err != nil {
				fail(err)
			}
			parsed, err := template.New(asked.Path).Funcs(functions).Parse(string(text))
			if err != nil {
				fail(err)
			}
			known[asked.Path] = parsed
		}
		var text bytes.Buffer
		if err := known[asked.Path].Execute(&text, asked.Env); err != nil {
			fail(err)
		}
		if err := out.Encode(text.String()); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
