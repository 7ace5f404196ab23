package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

// inputHelp explains the text arguments of prompt, steer and followup.
const inputHelp = `The text is the arguments, joined by blanks. An argument @FILE stands for the
file's content (@@ begins a word with a real @), and - or no argument at all
reads standard input.`

// inputFlags are what an input may carry besides its text.
type inputFlags struct {
	id     string
	images []string
}

func (f *inputFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.id, "id", "", "identity of the input: the same id twice has one effect (default random)")
	f.registerImages(cmd)
}

func (f *inputFlags) registerImages(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.images, "image", nil, "attach a picture (PNG, JPEG, GIF or WebP); may be repeated")
	_ = cmd.MarkFlagFilename("image", "png", "jpg", "jpeg", "gif", "webp")
}

// message builds the user message of a command line.
func (a *app) message(args []string, f *inputFlags) (*loop.UserMessage, error) {
	text, err := a.text(args)
	if err != nil {
		return nil, err
	}
	msg := &loop.UserMessage{}
	if strings.TrimSpace(text) != "" {
		msg.Content = append(msg.Content, &loop.Text{Text: text})
	}
	for _, name := range f.images {
		image, err := loadImage(name)
		if err != nil {
			return nil, err
		}
		msg.Content = append(msg.Content, image)
	}
	if len(msg.Content) == 0 {
		return nil, &codedError{code: exitUsage, err: client.ErrEmptyPrompt}
	}
	return msg, nil
}

// text joins the arguments, reading files and standard input as asked.
func (a *app) text(args []string) (string, error) {
	if len(args) == 0 {
		if isTerminal(a.in) {
			return "", usageErrorf("no text: give it as arguments, as @FILE, or on standard input")
		}
		args = []string{"-"}
	}
	parts := make([]string, 0, len(args))
	for _, arg := range args {
		part, err := a.textPart(arg)
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " "), nil
}

func (a *app) textPart(arg string) (string, error) {
	name, isFile := strings.CutPrefix(arg, "@")
	switch {
	case arg == "-":
		b, err := io.ReadAll(a.in)
		if err != nil {
			return "", fmt.Errorf("reading standard input: %w", err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	case !isFile || name == "":
		return arg, nil
	case strings.HasPrefix(name, "@"):
		return name, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", usageErrorf("reading %s: %s (write @%s for a word that begins with @)", arg, reason(err), arg)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// imageTypes are the pictures that both OpenAI APIs take.
var imageTypes = map[string]bool{
	"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true,
}

// loadImage reads a picture; its type is told from its content, not its name.
func loadImage(name string) (*loop.Image, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, usageErrorf("reading image %s: %s", name, reason(err))
	}
	mime := http.DetectContentType(b)
	if !imageTypes[mime] {
		return nil, usageErrorf("image %s is %s, not PNG, JPEG, GIF or WebP", name, mime)
	}
	return &loop.Image{Data: base64.StdEncoding.EncodeToString(b), MIMEType: mime}, nil
}
