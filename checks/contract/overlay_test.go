package contract_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const codegen = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"

// The tests in generated_test.go use a client and a server that oapi-codegen generates from
// openapi.json. They are in no repository: an overlay adds them to the package generated.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("builds oapi-codegen and generated code")
	}
	t.Parallel()
	dir := t.TempDir()
	code, overlay := filepath.Join(dir, "generated.go"), filepath.Join(dir, "overlay.json")
	runGo(t, "run", codegen, "-config", "generated/oapi-codegen.yaml", "-o", code, "../../openapi.json")
	target, err := filepath.Abs("generated/generated.go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, encode(t, map[string]any{"Replace": map[string]string{target: code}}), 0o644))
	runGo(t, "test", "-count=1", "-tags=generated", "-overlay="+overlay, "-run=Generated(Client|Server)", ".")
}

func runGo(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "no tests to run")
}
