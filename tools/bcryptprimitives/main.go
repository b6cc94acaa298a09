// Bcryptprimitives writes bcryptprimitives.dll, which wine 8 does not have. Without its function
// ProcessPrng, no Go program starts. The file forwards the function to SystemFunction036 of
// advapi32.dll, which fills memory with random bytes, too.
//
//	bcryptprimitives FILE
package main

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"log"
	"os"
)

// The layout of the file: the headers, and a section with the table of exported functions.
const alignment, sectionRVA, maxSection = 0x200, 0x1000, 0x1000

func main() {
	log.SetFlags(0)
	log.SetPrefix("bcryptprimitives: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: bcryptprimitives FILE")
	}
	section := exports("bcryptprimitives.dll", "ProcessPrng", "advapi32.SystemFunction036")
	if err := os.WriteFile(os.Args[1], append(headers(uint32(len(section))), section...), 0o600); err != nil {
		log.Fatal(err)
	}
}

// exports returns a section that exports one function, which is forwarded to another DLL.
func exports(dll, function, target string) []byte {
	const functions, names, ordinals, strings = sectionRVA + 40, sectionRVA + 44, sectionRVA + 48, sectionRVA + 52
	dllRVA := uint32(strings)
	functionRVA := dllRVA + uint32(len(dll)+1)
	targetRVA := functionRVA + uint32(len(function)+1)
	var b bytes.Buffer
	// One function with one name. The first ordinal is 1.
	write(&b, [...]uint32{0, 0, 0, dllRVA, 1, 1, 1, functions, names, ordinals})
	write(&b, [...]uint32{targetRVA, functionRVA, 0})
	b.WriteString(dll + "\x00" + function + "\x00" + target + "\x00")
	return append(b.Bytes(), make([]byte, alignment-b.Len()%alignment)...)
}

func headers(section uint32) []byte {
	const dosHeader, peSignature = 64, "PE\x00\x00"
	optional := pe.OptionalHeader64{
		Magic:                       0x20b,
		SizeOfInitializedData:       section,
		ImageBase:                   0x6a0000000,
		SectionAlignment:            maxSection,
		FileAlignment:               alignment,
		MajorOperatingSystemVersion: 6,
		MajorSubsystemVersion:       6,
		SizeOfImage:                 sectionRVA + maxSection,
		SizeOfHeaders:               alignment,
		Subsystem:                   pe.IMAGE_SUBSYSTEM_WINDOWS_CUI,
		DllCharacteristics:          pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT,
		NumberOfRvaAndSizes:         16,
	}
	optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT] = pe.DataDirectory{VirtualAddress: sectionRVA, Size: section}
	var b bytes.Buffer
	b.WriteString("MZ")
	b.Write(make([]byte, dosHeader-len("MZ")-4))
	write(&b, uint32(dosHeader)) // the offset of the signature
	b.WriteString(peSignature)
	write(&b, pe.FileHeader{
		Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(optional)),
		Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LARGE_ADDRESS_AWARE | pe.IMAGE_FILE_DLL,
	})
	write(&b, optional)
	write(&b, pe.SectionHeader32{
		Name:             [8]uint8([]byte(".edata\x00\x00")),
		VirtualSize:      section,
		VirtualAddress:   sectionRVA,
		SizeOfRawData:    section,
		PointerToRawData: alignment,
		Characteristics:  pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ,
	})
	return append(b.Bytes(), make([]byte, alignment-b.Len())...)
}

func write(b *bytes.Buffer, v any) {
	if err := binary.Write(b, binary.LittleEndian, v); err != nil {
		log.Fatal(err)
	}
}
