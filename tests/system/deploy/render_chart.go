// Renders the templates of a chart with Go's own template engine, as Helm does, and the functions that the chart uses.
// Standard input: {"Values": ..., "Release": ...} as JSON. Arguments: the files. toYaml writes JSON, which is YAML too.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var data map[string]interface{}
	fail(json.NewDecoder(os.Stdin).Decode(&data))
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(template.FuncMap{
		"include": func(name string, with interface{}) (string, error) {
			var out bytes.Buffer
			err := all.ExecuteTemplate(&out, name, with)
			return out.String(), err
		},
		"toYaml": func(value interface{}) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
		"nindent": func(spaces int, text string) string {
			pad := "\n" + strings.Repeat(" ", spaces)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"quote": func(value interface{}) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"int64": func(value float64) int64 { return int64(value) },
	})
	_, err := all.ParseFiles(os.Args[1:]...)
	fail(err)
	for _, path := range os.Args[1:] {
		if strings.HasPrefix(filepath.Base(path), "_") {
			continue
		}
		fmt.Println("---")
		fail(all.ExecuteTemplate(os.Stdout, filepath.Base(path), data))
		fmt.Println()
	}
}
