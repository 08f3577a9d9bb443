// render_chart.go CHART RELEASE [VALUES.yaml...]: prints what Helm would make of a chart that uses templates, values and Sprig's
// functions. For tests: Debian has no Helm, but the template engine and the functions that it uses (packages golang-go,
// golang-github-masterminds-sprig-dev and golang-k8s-sigs-yaml-dev). A value that is not in values.yaml is an error here.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run render_chart.go chart quire
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type object = map[string]interface{}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render_chart:", err)
		os.Exit(1)
	}
}

func readYaml(path string) object {
	text, err := os.ReadFile(path)
	must(err)
	values := object{}
	must(yaml.UnmarshalStrict(text, &values))
	return values
}

// merge puts the values of `changes` over those of `values`, map by map.
func merge(values, changes object) {
	for key, change := range changes {
		inner, isMap := change.(object)
		below, wasMap := values[key].(object)
		if isMap && wasMap {
			merge(below, inner)
		} else {
			values[key] = change
		}
	}
}

// Helm's Chart object: the fields of Chart.yaml, capitalized.
func chartObject(path string) object {
	chart := object{}
	for key, value := range readYaml(path) {
		chart[strings.ToUpper(key[:1])+key[1:]] = value
	}
	return chart
}

func toYaml(value interface{}) string {
	text, err := yaml.Marshal(value)
	must(err)
	return strings.TrimSuffix(string(text), "\n")
}

func main() {
	if len(os.Args) < 3 {
		must(fmt.Errorf("usage: render_chart.go CHART RELEASE [VALUES.yaml...]"))
	}
	folder := os.Args[1]
	values := readYaml(filepath.Join(folder, "values.yaml"))
	for _, path := range os.Args[3:] {
		merge(values, readYaml(path))
	}
	context := object{
		"Values":  values,
		"Chart":   chartObject(filepath.Join(folder, "Chart.yaml")),
		"Release": object{"Name": os.Args[2], "Namespace": "default", "Service": "Helm", "IsInstall": true},
	}
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = toYaml
	all := template.New("chart").Funcs(functions).Option("missingkey=error")
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	all.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	must(err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(err)
		_, err = all.New(filepath.Base(path)).Parse(string(text))
		must(err)
	}
	for _, path := range paths {
		if filepath.Ext(path) == ".yaml" {
			fmt.Println("---")
			must(all.ExecuteTemplate(os.Stdout, filepath.Base(path), context))
		}
	}
}
